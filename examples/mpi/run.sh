#!/bin/bash
# Starts a program under MPI, Open MPI's or MPICH's, whichever mpirun is:
#
#     examples/mpi/run.sh -n 4 -- infeed run s3://BUCKET/train --shuffle 7 --epochs 3
#     examples/mpi/run.sh -n 16 --hostfile hosts -- python python/examples/ddp_torch.py s3://BUCKET/train
#
# What stands before -- goes to mpirun (MPIRUN names another one). infeed takes rank and world size from MPI's variables.
# mpirun gives other hosts the variables of the store only when told: `-x AWS_REGION` for each with Open MPI,
# `-genvlist AWS_REGION,AWS_ENDPOINT_URL` with MPICH.
set -euo pipefail

options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -gt 1 ] || { echo "run.sh: -- and a program are missing" >&2; exit 2; }
shift

# torch.distributed asks for ranks by other names, and for a place where they meet: this host, where rank 0 is unless a
# hostfile begins with another. Programs that don't ask lose nothing by it.
exec "${MPIRUN:-mpirun}" "${options[@]}" bash -c '
    export MASTER_ADDR=$1 MASTER_PORT=$2
    export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
    export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}
    shift 2
    exec "$@"
' rank "${MASTER_ADDR:-$(hostname)}" "${MASTER_PORT:-29500}" "$@"
