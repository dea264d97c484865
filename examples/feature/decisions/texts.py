"""What agents and people read, by language. Without Japanese texts, a Japanese session shows the English ones."""

TEXTS = {
    "en": {
        "decisions.noted": "You have decided: {text}",
        "decisions.none": "No decision waits to be seen.",
        "notice.decision_noted.message": "An agent below you has decided something by itself.",
        "notice.decision_noted.instruction": "Nothing is to be done: your human will look at it.",
        "attention.kind.decision": "decided",
        "found.decision": "decision",
        "finding.decision_damaged": "this decision cannot be read: {reason}",
        "repair.decision_damaged": "mend the file in decisions/quarantine/ and move it back",
    },
    "ja": {
        "decisions.noted": "あなたの決定: {text}",
        "decisions.none": "未確認の決定はありません。",
        "notice.decision_noted.message": "配下のエージェントが自分で決定を下しました。",
        "notice.decision_noted.instruction": "対応は不要です。人間が確認します。",
        "attention.kind.decision": "決定",
        "found.decision": "決定",
        "finding.decision_damaged": "この決定を読めません: {reason}",
        "repair.decision_damaged": "decisions/quarantine/ のファイルを直し、元の場所に戻してください",
    },
}
