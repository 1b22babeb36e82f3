"""Limits per key and minute that hold over all gateways.

One authority (`authority`) adds up what every gateway used in the last minute. Gateways (`limiter`)
lease small amounts from it ahead of need, so that most requests are admitted without a call.
All messages (`messages`) are absolute: a lost or repeated one does no harm, and an authority that
was restarted knows everything again once each gateway has reported.
"""

from raydiff.serve.access.rates.authority import Authority
from raydiff.serve.access.rates.limiter import Limiter

__all__ = ["Authority", "Limiter"]
