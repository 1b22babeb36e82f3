"""Ray Serve: the HTTP protocol, the gateway, the replicas that host engines, autoscaling.

A request's life: `gateway` reads and checks a body (`protocol`), turns its prompts into
GenerationRequests (`prompts`), calls a replica through `raydiff.client`, and writes the answer
(`answers`, `streams`). `replica` hands requests to the engine's thread (`bridge`).
"""
