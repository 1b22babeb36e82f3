"""Who may call the gateway, and how much: API keys, rate limits, what is logged of a request."""

from raydiff.serve.access.caller import ANONYMOUS, Caller, Limits
from raydiff.serve.access.door import Access, Admission, OpenAccess, tokens_asked

__all__ = [
    "ANONYMOUS",
    "Access",
    "Admission",
    "Caller",
    "Limits",
    "OpenAccess",
    "tokens_asked",
]
