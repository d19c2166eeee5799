"""Commands; imports happen inside the command functions so that --help is instant."""
