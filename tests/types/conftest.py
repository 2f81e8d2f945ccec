"""The programs are for mypy, and for the test that runs the right one: pytest collects no doctests from them."""

collect_ignore = ["programs"]
