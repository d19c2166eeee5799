"""What is computed: an attention problem, its masks, its cuts into blocks and tiles, and widths of words."""
