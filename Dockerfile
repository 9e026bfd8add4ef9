# docker build -t arith-erd .
# mkdir -p runs
# docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD/runs:/runs" arith-erd \
#     -m task=add,mul split=random,vs_t,vs_v seed=0-4
# Probes: the same with --entrypoint python, and probe.py after the image's name. The GPU's driver must know CUDA 13.
#
# The full image has the compiler that torch.compile needs, so nothing comes from Debian's moving archive: a digest and
# hash-locked wheels decide what is in here. `docker buildx imagetools inspect python:3.12-bookworm` shows newer digests;
# another Python needs its own deploy/requirements.docker.txt.
ARG BASE=python:3.12.13-bookworm@sha256:3cd9086bdb30f7c9bc08a3fa621d9842e0d3f6f9291aeb4677e0547817c10b12
FROM ${BASE}

LABEL org.opencontainers.image.title="arith_erd" \
      org.opencontainers.image.description="Train, probe and dissect tiny Transformers on binary arithmetic" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT"

WORKDIR /app
COPY deploy/requirements.docker.txt deploy/
RUN pip install --no-cache-dir --require-hashes -r deploy/requirements.docker.txt

COPY pyproject.toml setup.py README.md LICENSE train.py probe.py ./
COPY src src
COPY conf conf
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && useradd --uid 1000 --no-create-home arith \
    && mkdir --mode 1777 /runs && ln -s /runs runs

# The code is root's; Matplotlib, torch.compile, Triton and W&B keep their caches in HOME and /tmp, for any --user.
ENV HOME=/tmp USER=arith WANDB_DIR=/runs PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
VOLUME /runs
ENTRYPOINT ["python", "train.py"]
