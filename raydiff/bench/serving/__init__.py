"""`raydiff bench serve`: loads on an app, through HTTP, its handle, or without either.

    bench     the contenders of a run take turns under the same loads
    settings  what is measured
    arrivals  when requests are due
    loads     open and closed loops, and what came of each request
    callers   how a request reaches the model: HTTP, the handle, an engine in the process
    generator a process that generates load
    host      a process that hosts an app
    remote    processes that answer messages
    cpu       processor seconds of an app by what its processes do
    figures   percentiles, rates, and the comparison of contenders

It imports nothing: processes of its own choose what they load.
"""
