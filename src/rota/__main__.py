"""python -m rota"""

from rota.cli.main import main

main()
