"""What the engine costs, beside its baseline and its peers: `nox -s bench`. README.md here tells how it is measured."""
