"""Values for programs, one kind of answer a file: JSON in base units and full precision, from values, not documents."""
