"""The documentation: pages for users, and what makes the site of them."""
