"""What is drawn without a document, because its form is its content: curves of data movement, games of pebbles."""
