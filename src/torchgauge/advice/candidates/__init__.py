"""One file per kind of improvement: its precondition and the lines that apply it."""
