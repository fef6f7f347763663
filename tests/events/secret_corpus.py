"""The measure of the redaction: texts with one secret each, and texts with none.

The secrets are made when the module is loaded, from pieces and a fixed seed, so that no scanner of
repositories takes this file for a leak. A positive is (label, value, the secret that must be gone); a
negative must come back unchanged.
"""

from __future__ import annotations

import json
import random
import string
from base64 import b64encode, urlsafe_b64encode
from typing import Any

_RANDOM = random.Random(43)
_ALNUM = string.ascii_letters + string.digits
_URLSAFE = _ALNUM + "_-"


def _chars(alphabet: str, count: int) -> str:
    made = "".join(_RANDOM.choice(alphabet) for _ in range(count - 2))
    return made + "a7" if "a" in alphabet else made + alphabet[:2]


def _alnum(count: int) -> str:
    return _chars(_ALNUM, count)


def _hex(count: int) -> str:
    return _chars("0123456789abcdef", count)


def _urlsafe(count: int) -> str:
    return _chars(_URLSAFE, count)


def _jwt(**claims: Any) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "iat": 1516239022, **claims}]
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, _urlsafe(43)])


def _pem(kind: str, lines: int = 6) -> str:
    body = "\n".join(_chars(_ALNUM + "+/", 64) for _ in range(lines))
    return f"-----BEGIN {kind}PRIVATE KEY" + f"-----\n{body}\n" + f"-----END {kind}PRIVATE KEY-----"


def _formats() -> list[tuple[str, str]]:
    discord_id = urlsafe_b64encode(b"812345678901234567").decode().rstrip("=")
    return [
        ("openai project", "sk-" + "proj-" + _urlsafe(120)),
        ("openai service account", "sk-" + "svcacct-" + _urlsafe(80)),
        ("openai classic", "sk-" + _alnum(20) + "T3Blbk" + "FJ" + _alnum(20)),
        ("deepseek", "sk-" + _hex(32)),
        ("openrouter", "sk-" + "or-v1-" + _hex(64)),
        ("anthropic", "sk-" + "ant-api03-" + _urlsafe(93) + "AA"),
        ("anthropic oauth", "sk-" + "ant-oat01-" + _urlsafe(80)),
        *((f"github {kind}", f"gh{kind}_" + _alnum(36)) for kind in "pousr"),
        ("github fine-grained", "github_" + "pat_" + _alnum(22) + "_" + _alnum(59)),
        ("gitlab", "glpat" + "-" + _urlsafe(20)),
        ("aws key id", "AKIA" + _chars(string.ascii_uppercase + "234567", 16)),
        ("aws temporary key id", "ASIA" + _chars(string.ascii_uppercase + "234567", 16)),
        ("google api", "AIza" + _urlsafe(35)),
        ("google oauth", "ya29" + ".a0" + _urlsafe(100)),
        ("google client", "GOCSPX" + "-" + _urlsafe(28)),
        (
            "slack bot",
            "xox" + "b-" + _chars("123456789", 12) + "-" + _chars("123456789", 12) + "-" + _alnum(24),
        ),
        ("slack user", "xox" + "p-" + _chars("123456789", 12) + "-" + _hex(32)),
        ("slack app", "xapp" + "-1-A" + _alnum(10) + "-" + _chars("123456789", 13) + "-" + _hex(64)),
        (
            "slack webhook",
            "hooks.slack" + ".com/services/T" + _alnum(10) + "/B" + _alnum(10) + "/" + _alnum(24),
        ),
        ("stripe live", "sk_" + "live_" + _alnum(24)),
        ("stripe restricted", "rk_" + "live_" + _alnum(40)),
        ("stripe test", "sk_" + "test_" + _alnum(24)),
        ("stripe webhook", "wh" + "sec_" + _alnum(32)),
        ("twilio", "SK" + _hex(32)),
        ("sendgrid", "SG" + "." + _urlsafe(22) + "." + _urlsafe(43)),
        ("mailgun", "key" + "-" + _hex(32)),
        ("npm", "npm" + "_" + _alnum(36)),
        ("pypi", "pypi" + "-AgEIcHlwaS5vcmc" + _urlsafe(120)),
        ("hugging face", "hf" + "_" + _alnum(34)),
        ("digitalocean", "dop" + "_v1_" + _hex(64)),
        ("telegram", _chars("123456789", 10) + ":AA" + _urlsafe(33)),
        ("discord bot", discord_id + "." + _urlsafe(6) + "." + _urlsafe(38)),
        ("discord webhook", "discord.com/api/" + "webhooks/" + _chars("123456789", 19) + "/" + _urlsafe(68)),
        ("jwt", _jwt()),
        ("jwt with claims", _jwt(name="Ann", roles=["admin", "author"])),
        ("groq", "gsk" + "_" + _alnum(52)),
        ("xai", "xai" + "-" + _alnum(80)),
        ("databricks", "dapi" + _hex(32)),
        ("langsmith", "lsv2" + "_pt_" + _hex(32) + "_" + _hex(10)),
        ("docker", "dckr" + "_pat_" + _urlsafe(27)),
        ("vault", "hvs" + "." + _urlsafe(90)),
        ("shopify", "shpat" + "_" + _hex(32)),
        ("atlassian", "ATATT3" + _urlsafe(100)),
    ]


def _named() -> list[tuple[str, str, str]]:
    password = "Tr0ub4" + "dor&3"
    token = _alnum(32)
    aws = _chars(_ALNUM + "+/", 40)
    basic = b64encode(b"admin:hunter" + b"2!").decode()
    azure = b64encode(bytes(_RANDOM.randrange(256) for _ in range(64))).decode()
    key = _pem("RSA ")
    cut = _pem("").split("-----END")[0]
    return [
        ("env", f"PASSWORD={password}\nDEBUG=1", password),
        ("env of one word", "export DB_PASSWORD=marmalade", "marmalade"),
        ("exported", f'export FOO_TOKEN="{token}"', token),
        ("aws secret", f"aws_secret_access_key = {aws}", aws),
        ("aws secret in env", f"AWS_SECRET_ACCESS_KEY={aws}\nAWS_REGION=eu-west-1", aws),
        ("json in text", json.dumps({"api_key": token, "model": "m"}), token),
        ("json in json in text", json.dumps(json.dumps({"api_key": token})), token),
        ("json with a password of a word", '{"user": "bob", "password": "marmalade"}', "marmalade"),
        ("python", f'client = Client(api_key="{token}")', token),
        ("python annotated", f'api_key: str = "{token}"', token),
        ("typescript", f"const authToken = '{token}';", token),
        ("yaml", f"db:\n  password: {password}\n  port: 5432", password),
        ("ini", f"[db]\npassword = {password}\n", password),
        ("flag", f"mytool --api-key {token} --verbose", token),
        ("flag with =", f"mytool --token={token} run", token),
        ("query", f"GET https://api.example.com/v1?access_token={token}&page=2", token),
        ("libpq", f"host=db user=app password={password} dbname=x", password),
        ("xml", "<user>bob</user><password>marmalade</password>", "marmalade"),
        ("curl bearer", f"curl -H 'Authorization: Bearer {token}' https://api.example.com", token),
        ("bearer alone", f"sent Bearer {token} to the server", token),
        ("curl basic", f'curl -H "Authorization: Basic {basic}" https://example.com', basic),
        ("basic alone", f"proxy wants Basic {basic}", basic),
        ("github header", f"authorization: token {token}", token),
        ("cookie header", f"GET / HTTP/1.1\r\nCookie: sid={token}; theme=dark\r\n", token),
        ("set-cookie header", f"Set-Cookie: session={token}; Path=/; HttpOnly", token),
        ("url", f"postgres://app:{password}@db.internal:5432/app".replace("&", "%26"), "dor%263"),
        ("redis url", f"redis://:{token}@cache:6379/0", token),
        ("https url", f"git clone https://bob:{token}@git.example.com/x.git", token),
        ("azure storage", f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={azure};E=x", azure),
        (
            "azure bus",
            f"Endpoint=sb://x.net/;SharedAccessKeyName=r;SharedAccessKey={azure[:43]}=",
            azure[:43],
        ),
        ("pem", f"before\n{key}\nafter", key.splitlines()[2]),
        ("pem in one line", json.dumps(key)[1:-1], key.splitlines()[2]),
        ("pem cut off", f"cat id_rsa\n{cut}", cut.splitlines()[2]),
        ("docker compose", f"    environment:\n      - POSTGRES_PASSWORD={password}", password),
        ("npmrc", f"//registry.example.com/:_authToken={token}", token),
        ("php", f"'password' => '{password}',", password),
        ("credentials in env", f"APP_CREDENTIALS={token}", token),
        ("jwt in env", f"SERVICE_JWT={token}", token),
        ("passcode", f"passcode: {password}", password),
        (
            "passphrase of words",
            '"passphrase": "correct horse battery staple"',
            "correct horse battery staple",
        ),
        ("private key in hex", f"private_key={token}", token),
        ("a long value", f"API_SECRET={token * 20}", token),
        ("a value with signs", "PASSWORD=Ab1&cd?ef|gh!\nX=1", "Ab1&cd?ef|gh!"),
        ("go", f'apiKey := "{token}"', token),
        ("dotnet", f"Server=db;User Id=sa;Password={password};", password),
    ]


def _keyed() -> list[tuple[str, Any, str]]:
    names = (
        "password db_password userPassword PASSWD passphrase openaiApiKey x-api-key X-API-KEY apikey api_key "
        "APIKey authorization Proxy-Authorization client_secret clientSecret refreshToken access_token "
        "accesstoken set-cookie Cookie secret secret_key private_key aws_secret_access_key credentials "
        "github_token TOKEN_PROD jwt pwd sessionToken webhook_secret encryption_key password2 api_key_openai"
    )
    secret = "plain" + "words"
    keyed: list[tuple[str, Any, str]] = [(f"key {name}", {name: secret}, secret) for name in names.split()]
    return [
        *keyed,
        ("key over a list", {"headers": {"Authorization": [secret]}}, secret),
        ("key over an object", {"credentials": {"user": "bob", "pin": secret}}, secret),
        ("key over a number", {"password": 918273645}, "918273645"),
        ("name and value", {"env": [{"name": "DB_PASSWORD", "value": secret}]}, secret),
        ("attribute", {"key": "http.request.header.authorization", "value": {"stringValue": secret}}, secret),
    ]


def _positives() -> list[tuple[str, Any, str]]:
    made: list[tuple[str, Any, str]] = []
    surroundings = (
        "{}",
        "the key is {}, keep it",
        "line one\n{}\nline three",
        '{{"a": "x\\n{}"}}',
        "\x1b[32m{}\x1b[0m",
        "https://x.example/cb?next=%3D{}",
    )
    for label, secret in _formats():
        visible = secret.rpartition("/")[2].rpartition(":")[2]
        for at, around in enumerate(surroundings):
            made.append((f"{label} ({at})", around.format(secret), visible))
        made.append((f"{label} (as a key)", {secret: 1}, visible))
    return [*made, *_named(), *_keyed()]


POSITIVES: list[tuple[str, Any, str]] = _positives()

_ULID = "01HZX3" + "K7Q2M4N8P6R5T9V0WXYZ"
_SHA = "3f786850e387550fdab836ed7e6dc881de23001b"
_UUID = "550e8400-e29b-41d4-a716-446655440000"
_IMAGE = b64encode(bytes(random.Random(7).randrange(256) for _ in range(6000))).decode()

NEGATIVES: list[Any] = [
    # words that end in sk-, and other things with dashes
    f"task-{_ULID}",
    f"task-{_UUID}",
    f"task-{_SHA}",
    "risk-assessment-2024-q3-final-report-long",
    "desk-booking-system-v2-production-eu-west-1",
    "ask-the-experts-2024-summer-edition-part-17",
    "disk-usage-report-20240131-node-17-shard-0042",
    f"run the task-{_ULID} before risk-{_UUID}",
    "subtask-proj-0123456789abcdefghijklmnop",
    "mask-ant-0123456789012345678901234567890",
    "sketch-0123456789-abcdefghijklmnopqrstuvwxyz",
    '<div class="sk-fading-circle sk-cube-grid"><div class="sk-toggleable__content sk-container-id-12">',
    ".sk-estimator-doc-link.fitted, .sk-folding-cube-animation-fast { color: red }",
    "locale sk-SK, sk-Latn-SK-1996-collation-standard",
    f"id {_UUID} and {_UUID.upper()}",
    f"commit {_SHA}\nAuthor: Ann <ann@example.com>\nDate: Mon Jan 1 10:00:00 2024 +0000",
    f"sha256:{_SHA}{_SHA[:24]}",
    f"run_{_ULID} tc_{_ULID} evt_{_ULID}_17",
    f"data:image/png;base64,{_IMAGE}",
    {"type": "image", "data": _IMAGE},
    "chatcmpl-9xZ1abcDEFghiJKLmnoPQRstuVWX toolu_01A09q90qw90lq917835lq9 call_abc123DEF456ghi789",
    "msg_01XFDUDYJgAACzvnptvVoYEL req_011CSHoEeqs5C35K2UUqR7Fy",
    # usage and names of fields
    {"max_tokens": 4096, "prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19, "token_count": 3},
    {
        "usage": {
            "inputTokens": 1,
            "outputTokens": 2,
            "cacheReadInputTokens": 0,
            "tokens": 3,
            "totalTokens": 3,
        }
    },
    {"tokenizer": "cl100k_base", "token_limit": 8192, "token_type": "word", "eos_token": "<|endoftext|>"},
    {"next_page_token": "CAUQAA", "pageToken": "abc", "continuation_token": "x9"},
    {
        "key": "value",
        "primary_key": "id",
        "public_key": "ssh-ed25519 AAAAC3Nza",
        "keyboard": "us",
        "hotkey": "F5",
    },
    {"secretary": "Ann", "author": "Bob", "authority": "x", "authenticated": True, "authors": ["C"]},
    {
        "idempotency_key": "send-1",
        "cache_key": "a/b",
        "sort_key": "date",
        "storage_key": "t/w/run/x",
        "keys": [1],
    },
    {"password": None, "has_password": True, "api_key": "", "secret": False, "credentials": []},
    {
        "password_reset_url": "https://example.com/reset",
        "token_url": "https://a/t",
        "password_policy": "strong",
    },
    {"token_endpoint": "https://a/t", "authorization_endpoint": "https://a", "cookie_consent": "yes"},
    {"logprobs": {"content": [{"token": "Hello", "logprob": -0.1, "bytes": [72]}]}},
    {"token": {"id": 5, "text": "Hi", "logprob": -0.2, "special": False}},
    {
        "input_schema": {
            "type": "object",
            "properties": {"password": {"type": "string"}},
            "required": ["password"],
        }
    },
    {"properties": {"api_key": {"description": "Key of the service", "type": "string"}}},
    {"secret_name": "db/main", "secret_arn": "arn:aws:secretsmanager:x", "private_key_path": "/etc/key.pem"},
    {"access_key_id": "none", "api_key_env": "OPENAI_API_KEY", "PWD": "/home/user"},
    # code
    "password = getpass.getpass()",
    "def login(user: str, password: str, token: str | None = None) -> None: ...",
    "self.password = password",
    "DB_PASSWORD=settings.database.password2 API_TOKEN=config.api.token",
    "api_key=os.environ['OPENAI_API_KEY'], token=token, secret=self.secret",
    'api_key = os.getenv("OPENAI_API_KEY")',
    "const apiKey = await getApiKeyForModel(nextModel);",
    "const apiKey = parsed.apiKey || (await getApiKeyForModel(model2));",
    "interface Auth { apiKey: string; token: Uint8Array; password?: string; secret: Buffer }",
    "apiKey: process.env.ANTHROPIC_API_KEY,",
    'headers = {"Authorization": f"Bearer {token}", "X-Api-Key": api_key}',
    "curl -H 'Authorization: Bearer $TOKEN' -H \"x-api-key: ${API_KEY}\" https://api.example.com",
    "export OPENAI_API_KEY=$KEY; PASSWORD=${DB_PASSWORD:-}; TOKEN=$(cat /run/token)",
    "API_KEY=<your-key> PASSWORD=******** TOKEN=your_token_here",
    'api_key="your-api-key-here"  # replace',
    "if token == 'comma2' or token.type === TokenType.Comma2: pass",
    "tokens: number; maxTokens: 4096, totalTokens = a1 + b2; contextTokens = calculateTokens2(x)",
    "tokenizer = AutoTokenizer.from_pretrained('gpt2'); token_ids = tokenizer.encode('abc123def')",
    'CONF_PASSWORD = "password"\nCONF_API_KEY = "api_key"\nTOKEN_HEADER = "X-Token-1234"',
    '<input type="password" name="password" placeholder="Password" autocomplete="current-password">',
    'key = "primary"; public_key = load("id_rsa.pub"); keyboard = "de-latin1-nodeadkeys"',
    'if line.startswith("-----BEGIN RSA PRIVATE KEY-----"): end = "-----END RSA PRIVATE KEY-----"',
    "postgres://${DB_USER}:${DB_PASS}@db:5432/app and mysql://$USER:$PASS@host/db",
    "secrets.token_hex(16); secret = secrets.token_urlsafe(32); hash_password(password, salt)",
    "switch (token.kind) { case Token::Identifier: return token::name; }",
    "monarch: { token: 'keyword.control', next: '@pop' }, { token: 'string.quoted2' }",
    "password: z.string().min(8).max(128), token: z.string().optional()",
    "npm_config_registry=https://packages.example/ npm_lifecycle_event=test npm_package_version=1.2.3",
    "hf_hub_download(repo_id='x', filename='y'); hf_transfer_enabled_by_default_for_everyone_1",
    # logs, shells, prose
    "PWD=/home/user/project OLDPWD=/tmp HOME=/root",
    "2024-01-31T10:00:00.123Z INFO task-42 finished in 1.2s (token usage: 1234 in, 567 out)",
    "GET http://localhost:8080/a/b?page=2&tokenize=true 200 12ms ann@example.com",
    "ssh://git@github.com/a/b.git, git@github.com:a/b.git, http://host:80/@scope/pkg",
    "The password must be at least 8 characters. Password: required. Your token expires in 24h.",
    "He was the bearer of bad news; bearer authentication is described in RFC 6750.",
    "Basic Economy flights cannot be modified. Basic understanding of HTTP is assumed.",
    "The secret: work hard. The author's secretary kept the key of the cookie jar.",
    'WWW-Authenticate: Bearer realm="example", error="invalid_token"',
    "Authorization: Basic auth is not supported; use the Authorization: Bearer scheme.",
    "eyJ is how base64 of a JSON object begins; AKIA and ASIA begin key ids; ghp_ begins tokens.",
    "ASIAPACIFIC AKIAK SG.1.2 SKU SK12345 key-value key-0 xoxo xoxb xapp hf_ npm_ pypi-requests dapi",
    "Meet at 10:AA gate; flight SG.123.456 to LAS; Module.config.load_everything_from_the_disk_now",
    "MAC 08:AA:3F:00:12:77, IPv6 2001:db8::AA12, time 12:30:45",
    "pip install pypi-attestations; npm i @scope/pkg; docker pull a/b:1.2",
    "|/dev/sda1|ext4|" + "-" * 80 + "+" * 80,
    "[redacted:key] and [redacted:openai] stay as they are",
    "日本語のテキスト、パスワード：なし。 Ünïcödé — “quotes” 🙂",
]
