"""`python -m alpinehub`: the hub's command line from a checkout."""

from alpinehub.cli import main

if __name__ == "__main__":
    main()
