"""The work that is worth limiting. It stands for calls of a model that cost money."""


def answer(question: str) -> str:
    return f"You asked: {question}"


def extract(text: str) -> list[str]:
    return sorted({word.lower() for word in text.split()})


def analyse(text: str) -> dict[str, int]:
    return {"words": len(text.split()), "characters": len(text)}
