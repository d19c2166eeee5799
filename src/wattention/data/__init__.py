"""Corpus, tokenizer, batches, and the recall task."""
