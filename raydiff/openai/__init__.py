"""OpenAI's text protocol without HTTP: what bodies say, what answers and errors look like."""
