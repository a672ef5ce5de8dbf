"""What a person has said beforehand about calls and folders, and the files that keep it.

``rules`` reads and compares rules, ``file`` keeps those of each project, ``trust`` which projects
may bring their own; ``person_file`` is such a file in the person's own settings folder: a
repository must not be able to give itself rights.
"""
