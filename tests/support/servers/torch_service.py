"""A torch model behind FastAPI, as services are written: run by uvicorn on a free port."""

import argparse
import sys
import threading

import torch
import uvicorn
from fastapi import FastAPI


def service() -> FastAPI:
    """Return the application."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
    app = FastAPI()

    @app.post("/predict")
    def predict(body: dict) -> dict:
        with torch.inference_mode():
            return {"sum": float(model(torch.tensor(body["x"])).sum())}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--life", type=float, default=120.0)
    chosen = parser.parse_args()
    server = uvicorn.Server(
        uvicorn.Config(service(), host="127.0.0.1", port=chosen.port, log_level="error")
    )

    def end() -> None:
        server.should_exit = True

    threading.Timer(chosen.life, end).start()
    threading.Thread(target=lambda: (sys.stdin.read(), end()), daemon=True).start()
    server.run()
