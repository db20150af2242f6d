%define parse.error verbose
%token NUMBER
%left '+' '-'
%left '*' '/'
%right NEG
%%
input: | input line;
line: '\n' | expr '\n' { result($1); } | error '\n' { yyerrok; };
expr: NUMBER | expr '+' expr { $$ = $1 + $3; } | expr '-' expr { $$ = $1 - $3; } | expr '*' expr { $$ = $1 * $3; }
    | expr '/' expr { $$ = $1 / $3; } | '-' expr %prec NEG { $$ = -$2; } | '(' expr ')' { $$ = $2; };
%%
