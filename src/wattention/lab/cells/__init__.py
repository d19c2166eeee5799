"""One cell end to end, a kind a file: prove, search, train, time one layer over lengths, train to a target."""
