"""Corpus jobs: shards of Parquet become documents, summaries and committed parts."""
