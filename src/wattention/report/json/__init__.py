"""Values for programs, one kind of answer a file: JSON in base units and full precision, from values, not documents.

``..._to_json`` returns objects, ``..._json`` one line of text.
"""
