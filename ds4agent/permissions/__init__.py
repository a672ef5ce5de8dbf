"""What a person has said about calls beforehand: rules, and the files that keep them.

``rules`` reads and compares them, ``file`` keeps those of each project in the person's own
settings folder: a repository must not be able to give itself rights.
"""
