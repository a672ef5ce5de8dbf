"""Agent tasks: small jobs with a check, to see what a model and this program do together."""
