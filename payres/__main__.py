"""`python -m payres` is the same as `payres`."""

from payres.cli import main

if __name__ == "__main__":
    main(prog_name="payres")
