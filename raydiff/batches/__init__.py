"""OpenAI's files and batches over a store: no FastAPI, and Ray only where a job is submitted."""
