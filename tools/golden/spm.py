"""SentencePiece BPE by its definition: merge the pair whose piece scores best, until none is left. Slow and plain."""


class SentencePiece:
    def __init__(self, tokens, scores):
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.scores = scores

    def encode(self, text):
        pieces = list(text.replace(" ", "\u2581"))
        while True:
            best = None
            for i in range(len(pieces) - 1):
                token = self.ids.get(pieces[i] + pieces[i + 1])
                if token is not None and (best is None or self.scores[token] > best[0]):
                    best = (self.scores[token], i)
            if best is None:
                break
            i = best[1]
            pieces[i:i + 2] = [pieces[i] + pieces[i + 1]]
        ids = []
        for piece in pieces:
            if piece in self.ids:
                ids.append(self.ids[piece])
            else:
                ids += [self.ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
        return ids
