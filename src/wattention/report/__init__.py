"""A document (sections, tables, notes as data) and its renderers; the only place that formats units."""
