"""What a person adds to the agent: commands of their own, hooks around calls, tools of servers.

All of it comes from the person's own settings. A project may bring Markdown commands, which are
only text that the person sends; hooks and servers it may not.
"""
