"""References: the operator's own names for what was done, under which it is done once."""

import click

reference_option = click.option(
    "--reference", metavar="TEXT", help="Your own name for it: what has it already is not done again."
)
