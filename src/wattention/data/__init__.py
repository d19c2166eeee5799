"""Corpus, tokenizer, batches, and the recall task. No torch here: batches are NumPy arrays."""
