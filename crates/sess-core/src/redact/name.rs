//! Names that are given to secrets.

/// What a name says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Chosen by people: may be short, may be a word.
    Password,
    /// Made by machines, and named so that nothing else is meant.
    Secret,
    /// Some key: most are not secret at all, so the value must tell.
    Key,
}

/// Words after which a name is no longer that of the secret itself: `token_count`, `key_id`.
const AFTER: &str = "\
    age alg algo algorithm at attr attribute auth bits box budget bytes callback char chars class code \
    codes col column count counts desc description digest dir encoding endpoint env err error event \
    expiration expires expiry field fields file filename files fingerprint fn for format from func \
    handler hash hashed hasher header help hint id ids idx in index info input kind label len length \
    level limit list location map max message min mode model msg name names num offset on op params \
    parser path pattern placeholder policy pos position prefix prompt provider ref regex schema scheme \
    scope size source spec state status store suffix text title to ttl type types uri url usage \
    version";

/// Words right before which it is the name of something else: `next_token`, `has_password`.
const BEFORE: &str = "\
    any bos by cancellation cls continuation duplicate eos get has input is mask max min missing next no \
    num output pad page parse prev previous progress pub public publishable sep start stop sync unk with without";

/// Words right before which a key is one of a table, a cache or a page: `primary_key`.
const BEFORE_KEY: &str = "\
    attr cache column compare composite config data dict event field foreign group header host hot \
    idempotency index item join json lookup map metadata node object order partition primary query \
    range reg registry resource routing row session shard site sort storage surrogate translation \
    unique";

/// Words that make a key a credential: `api_key`.
const CREDENTIAL_KEYS: &str = "\
    access account admin anthropic api app application auth aws azure client consumer crypt decryption \
    deploy encrypt encryption function hmac jwt license master openai priv private restricted role \
    secret server service shared signature signing stripe subscription webhook";

/// Words that make `pass` a password: a `render_pass` is none.
const PASS_OWNERS: &str = "\
    admin auth basic database db email ftp http imap login mail mongo mysql pg postgres proxy redis \
    root smtp ssh sudo user";

/// Returns what a name says, or `None` when it names no secret.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let words = words(name);
    let at = words.iter().rposition(|word| is_secret_word(word))?;
    let before = at.checked_sub(1).map(|before| words[before].as_str());
    let is_public = words[..at].iter().any(|word| matches!(word.as_str(), "public" | "publishable"));
    let is_about = words[at + 1..].iter().any(|word| lists(AFTER, word));
    if is_public || is_about || before.is_some_and(|word| lists(BEFORE, word)) {
        return None;
    }
    match words[at].as_str() {
        "key" => match before {
            Some(word) if lists(CREDENTIAL_KEYS, word) => Some(Kind::Secret),
            Some(word) if lists(BEFORE_KEY, word) => None,
            Some(_) | None => Some(Kind::Key),
        },
        "pass" => before.filter(|word| lists(PASS_OWNERS, word)).map(|_| Kind::Password),
        "passphrase" | "pwd" => Some(Kind::Password),
        word if word.ends_with("password") || word.ends_with("passwd") || word.ends_with("pass") => {
            Some(Kind::Password)
        }
        _ => Some(Kind::Secret),
    }
}

/// Whether the secret's word is the last of the name: `db_password`, and not `secret_santa`.
pub(super) fn ends_secret(name: &str) -> bool {
    words(name).last().is_some_and(|word| is_secret_word(word))
}

pub(super) fn lists(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

/// Whether a word says secret, also when it is written together with another: `authtoken`.
pub(super) fn is_secret_word(word: &str) -> bool {
    let fused_key = word.strip_suffix("key").is_some_and(|owner| lists(CREDENTIAL_KEYS, owner));
    let fused_pass = word.strip_suffix("pass").is_some_and(|owner| lists(PASS_OWNERS, owner));
    let fused = ["token", "secret", "password", "passwd"].iter().any(|ending| word.ends_with(ending));
    matches!(word, "key" | "pass" | "passphrase" | "pwd") || fused || fused_key || fused_pass
}

/// Splits at punctuation and at capitals: `dbPassword`, `DB_PASSWORD` and `db-password` are the same.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let bytes = name.as_bytes();
    let mut start = 0;
    let mut push = |part: &str| {
        let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
        if !word.is_empty() {
            words.push(word.to_ascii_lowercase());
        }
    };
    for (at, c) in name.char_indices() {
        if !c.is_ascii_alphanumeric() {
            push(&name[start..at]);
            start = at + c.len_utf8();
            continue;
        }
        let hump = at > start
            && bytes[at].is_ascii_uppercase()
            && (!bytes[at - 1].is_ascii_uppercase() || bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase));
        if hump {
            push(&name[start..at]);
            start = at;
        }
    }
    push(&name[start..]);
    words
}
