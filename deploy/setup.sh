# Sets up the environment of a checkout. Sourced by tests/run.sh, .ci/run and jobs/demo.sh, from
# the top of the checkout.

say() { printf '== %s\n' "$*"; }

die() {
  printf 'raydiff: %s\n' "$*" >&2
  exit 3
}

# Installs the Debian packages named, if any is missing and this is root on Debian.
ensure_debian_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || return 0
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "Debian packages missing, and only root can install them: ${missing[*]}"
    return 0
  fi
  say "installing Debian packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null
}

# Prints the first Python that can run raydiff (3.11 or 3.12).
find_python() {
  local name
  for name in python3 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
      2>/dev/null; then
      command -v "$name"
      return 0
    fi
  done
  die "Python: expected 3.11 or 3.12 as python3, python3.12 or python3.11, got \
$(python3 --version 2>&1 || true). Install one of them and run this again."
}

# Makes .venv and installs this checkout with the extras named ("" for none), unless that was
# done for the same pyproject.toml and constraints.
ensure_venv() {
  local extras="$1" python stamp sum
  stamp=".venv/raydiff-installed-${extras:-plain}"
  if [ ! -x .venv/bin/python ]; then
    python="$(find_python)"
    "$python" -c 'import ensurepip' 2>/dev/null || ensure_debian_packages python3-venv
    say "making .venv with $python"
    "$python" -m venv .venv
  fi
  sum="$(cat pyproject.toml deploy/constraints.txt | sha256sum)"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ]; then
    say "installing raydiff${extras:+ [$extras]} into .venv"
    .venv/bin/python -m pip install -qq --disable-pip-version-check \
      -c deploy/constraints.txt -e ".${extras:+[$extras]}"
    printf '%s\n' "$sum" >"$stamp"
  fi
}
