"""Options that several verbs share, each declared once, and the requests that are made of them."""
