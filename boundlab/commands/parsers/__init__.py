"""The arguments of every command, in a module with its name: ``declare`` adds them. Nothing of
torch is needed here, so that help comes at once."""
