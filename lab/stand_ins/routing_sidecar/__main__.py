"""`python3 -m lab.stand_ins.routing_sidecar --flag…`: what `/app/pd-sidecar` is in the lab's image."""

from lab.stand_ins.routing_sidecar.main import main

main()
