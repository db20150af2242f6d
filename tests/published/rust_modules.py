# packages: pydantic orjson tokenizers
"""Extension modules in Rust: validation, JSON, training of a tokenizer with threads, panics that become exceptions."""
import orjson
from pydantic import BaseModel, Field, ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

class Item(BaseModel):
    name: str = Field(min_length=2)
    price: float = Field(gt=0)
    tags: list[str] = []

class Order(BaseModel):
    items: list[Item]
    count: int

order = Order.model_validate_json('{"items": [{"name": "ab", "price": "3.5", "tags": ["x"]}], "count": 3}')
print(order.model_dump_json(), sorted(Order.model_json_schema()))
try:
    Order.model_validate({"items": [{"name": "a", "price": -1}, 7], "count": "x"})
except ValidationError as error:
    print([(e["loc"], e["type"]) for e in error.errors()])
data = {"a": list(range(3000)), "b": {str(n): n * 1.1 for n in range(500)}, "c": "\u00e9\u4e2d" * 99}
text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
print(len(text), orjson.loads(text) == data)
for bad in (b"[1,", b'{"a" 1}', b"\xff"):
    try:
        orjson.loads(bad)
    except orjson.JSONDecodeError as error:
        print(error)
words = [f"the quick w{n % 91} jumps over {n % 17} lazy dogs" for n in range(1500)]
tokenizer = Tokenizer(models.BPE(unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=300, special_tokens=["?"], show_progress=False))
print(tokenizer.get_vocab_size(), tokenizer.encode("the lazy w33 dogs jumped").tokens)
print(sum(len(e.ids) for e in tokenizer.encode_batch(words)))
