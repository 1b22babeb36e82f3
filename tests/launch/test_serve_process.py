"""`raydiff serve` as a process: its config changes while it serves, and it ends without cutting."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from raydiff.launch.ports import free_port
from tests.processes import start_raydiff, still_alive, wait_for_text

ONE = "drain_s: 20\nmodels:\n- {name: a, model: 'simulated:4x8=0.8s', num_cpus: 0.1}\n"
TWO = f"{ONE}- {{name: b, model: 'simulated:4x8=0.1s', num_cpus: 0.1}}\n"
PRIVATE = {"RAY_ADDRESS": "local", "RAY_AUTH_MODE": "disabled"}


def test_sighup_changes_the_models_and_sigterm_lets_calls_end(tmp_path: Path) -> None:
    """One process for both rules, because it takes long to start."""
    config, output, port = tmp_path / "app.yaml", tmp_path / "output", free_port("127.0.0.1")
    config.write_text(ONE)
    url = f"http://127.0.0.1:{port}"

    def call(model: str, max_tokens: int) -> httpx.Response:
        body = {"model": model, "prompt": "x", "max_tokens": max_tokens}
        return httpx.post(f"{url}/v1/completions", json=body, timeout=60)

    def stream(send_signal: Callable[[int], None]) -> str:
        """The text of a stream in the middle of which SIGTERM arrives."""
        body = {"model": "a", "prompt": "x", "max_tokens": 3 * 32, "stream": True}
        text = ""
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
            for part in answer.iter_text():
                if not text:
                    send_signal(signal.SIGTERM)
                text += part
        return text

    with output.open("wb") as file, ThreadPoolExecutor() as pool:
        args = ["serve", "--config", str(config), "--port", str(port)]
        process = start_raydiff(args, file, PRIVATE)
        try:
            wait_for_text(process, output, "Ctrl-C ends it.")
            across = pool.submit(call, "a", 8 * 32)
            config.write_text("modles: []\n")
            process.send_signal(signal.SIGHUP)
            wait_for_text(process, output, "modles: unknown setting.")
            config.write_text(TWO)
            process.send_signal(signal.SIGHUP)
            wait_for_text(process, output, "Serving a, b\n")
            assert across.result().status_code == 200
            assert [call(name, 4).status_code for name in ("a", "b")] == [200, 200]
            assert stream(process.send_signal).endswith("data: [DONE]\n\n")
        except BaseException:
            process.terminate()
            process.wait(60)
            raise
        assert process.wait(60) == 0
    assert still_alive({process.pid}) == set()
    assert "Traceback" not in output.read_text()
