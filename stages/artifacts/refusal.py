"""The one way of saying that an input is wrong."""


class Refusal(ValueError):
    """Bad input, said in one line that names the file, row and column or the parameter.

    The command line prints the line and exits with status 2; nothing has been written by then.
    """
