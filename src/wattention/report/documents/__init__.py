"""Documents, one question a file: values of analysis arranged as title, answer and sections; nothing prints itself."""
