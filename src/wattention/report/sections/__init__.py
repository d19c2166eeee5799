"""Parts of documents, one subject a file: pure functions from values to sections, or to none without data."""
