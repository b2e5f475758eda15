"""`python3 -m lab.stand_ins.model_server serve MODEL --flag…`: what `vllm` is in the lab's image."""

from lab.stand_ins.model_server.main import main

main()
