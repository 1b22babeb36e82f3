"""Who may call the gateway, and how much: API keys, rate limits, what is logged of a request."""

from raydiff.serve.access.binding import check_binding, listening_host
from raydiff.serve.access.caller import ANONYMOUS, Caller, Limits
from raydiff.serve.access.door import Access, Admission, OpenAccess, tokens_asked
from raydiff.serve.access.keyed import KeyedAccess, access_of

__all__ = [
    "ANONYMOUS",
    "Access",
    "Admission",
    "Caller",
    "KeyedAccess",
    "Limits",
    "OpenAccess",
    "access_of",
    "check_binding",
    "listening_host",
    "tokens_asked",
]
