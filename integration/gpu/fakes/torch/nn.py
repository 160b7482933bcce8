class functional:
    @staticmethod
    def cross_entropy(scores, labels):
        assert len(scores) == len(labels)
        return scores
