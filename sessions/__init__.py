"""Conversations on disk. Modules in reading order:

``errors``         what can go wrong, in words for a person
``record``         plain data: what a list shows, what a save reports
``kvc``            the envelope of a checkpoint file: header, text, trailers
``identity``       titles and session ids
``payload``        what a model family's payload codec provides
``llama_payload``  the payload of the ``llama`` family
``codecs``         the codec of each family
``checkpoint``     a whole checkpoint file: envelope and payload together
``safe_file``      files that appear whole or not at all, and errors of the disk in plain words
``locks``          one writer in a folder, one owner of an open session
``side_file``      our own facts about a session, beside its checkpoint
``marks``          what a person decided about a session: its name, a pin
``folder``         names in the folder, and leftovers of crashed programs
``system_slots``   checkpoints of the system prompt
``streams``        files whose bytes are counted and hashed on the way
``journal``        the layout of a journal: heads, records, what of a file is valid
``journal_writer`` appending to one, and what reaches the disk when
``journal_state``  a state and its journal put together
``session_file``   one session from all of its files
``checkpoint_files`` a checkpoint and its facts written together
``store``          save, load, list, delete
``keeper``         one open conversation: appends, and folds them into its checkpoint
``fork``           a second conversation in the same bytes
``upkeep``         name, pin, strip, verify, search
``budget``         what is worth least, and making room
``prefix_lookup``  the longest saved text that a prompt begins with
``grids``          numbers of FP8 and FP4 in one byte and in half a byte
``squeeze``        arrays in few bytes, bit for bit
``sealed``         a stream under a passphrase
``export_file``    one conversation as one small file
``transfer``       out of one store, into another
"""

__all__ = [
    "budget",
    "checkpoint",
    "checkpoint_files",
    "codecs",
    "errors",
    "export_file",
    "folder",
    "fork",
    "grids",
    "identity",
    "journal",
    "journal_state",
    "journal_writer",
    "keeper",
    "kvc",
    "llama_payload",
    "locks",
    "marks",
    "payload",
    "prefix_lookup",
    "record",
    "safe_file",
    "sealed",
    "session_file",
    "side_file",
    "squeeze",
    "store",
    "streams",
    "system_slots",
    "transfer",
    "upkeep",
]
