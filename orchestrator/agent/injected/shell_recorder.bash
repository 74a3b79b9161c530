# Read by every bash of a stage, through BASH_ENV: writes down each exit code other than 0, and whether it was tested.
#
# What is tested is what bash itself takes for tested (`set -e`, the ERR trap): conditions, `!`, all but the last of an
# `&&` or `||` list; and a command before one that reads `$?` or PIPESTATUS. ERR says that a command failed untested; the
# DEBUG trap, which runs before each command, sees what the next command does about it, and PIPESTATUS for the members
# of a pipeline that ERR does not see. The script's own `$?`, `$_`, PIPESTATUS, traps and output stay as they are.
#
# A line: KIND shell parent code line file command first-word place way count more, with tabs between;
# orchestrator/agent/evidence/shell/record.py reads them. Kinds that do not speak for themselves:
#   loaded   a shell begins, with its options; `more` are the lines that it was given
#   outside  a shell runs a script that is none of the stage's, and is not looked into
#   foreign  a file that is none of the stage's is read in and runs something, or is a program; `first-word` says which
#   enters   a subshell begins
#   passed   a shell or a subshell ends, which its parent decides about; `more` are the processes above a shell
#   tested   a failure that bash takes for tested; `more` is the next command, with a = before it if it is in the same
#            line. What becomes of it stands in the script, at `place`, and behind the calls of the functions that ended
#            with it, and of sourced files, which are the `way`
#   negated  the same where the command has succeeded, and a ! has made a failure of that
#   trapped  a failure for which the script's own ERR trap ran, which is `more`
#   again    a command succeeds that has failed before
#   begins   a program that may not say what those returned that it runs
#   eval     a member of a pipeline that ended an `eval`
#
# Each command of the functions here runs the DEBUG trap as well, which passes over it: what runs often has few.

[[ -n ${NSA_POD_SHELL_RECORD-} && -z ${__nsa_file-} ]] || return 0
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404 )) || return 0 # `local -`
[[ -z ${PYTEST_CURRENT_TEST-} ]] || return 0 # what a test runs is the test's to judge

# Whether this is bats, or below it: whatever names it in the environment, one must run.
__nsa_is_of_bats() {
  local pid=$BASHPID key value script
  while (( pid > 1 )); do
    script=()
    mapfile -d '' -n 2 script <"/proc/$pid/cmdline" || return 1
    script=("${script[@]##*/}")
    [[ ${script[0]-} != bats* && ${script[1]-} != bats* ]] || return 0
    while read -r key value && [[ $key != PPid: ]]; do :; done <"/proc/$pid/status"
    pid=$value
  done 2>/dev/null
  return 1
}
if [[ -n ${BATS_ROOT-} ]] && __nsa_is_of_bats; then unset -f __nsa_is_of_bats; return 0; fi
unset -f __nsa_is_of_bats

# Whether a file is none of the stage's.
__nsa_is_outside() {
  local roots=${NSA_POD_SHELL_ROOTS-}:
  while [[ -n $roots && $1 != "${roots%%:*}"/* ]]; do roots=${roots#*:}; done
  [[ -z $roots ]]
}

if [[ -n ${NSA_POD_SH-} ]]; then # as /bin/sh on most pods, dash, has it
  unset NSA_POD_SH
  shopt -s xpg_echo expand_aliases
  shopt -s inherit_errexit 2>/dev/null || :
  set +B
fi

# A script of the system is its own: only lines that were given and scripts below NSA_POD_SHELL_ROOTS are the stage's.
if [[ -z ${BASH_EXECUTION_STRING+set} ]]; then
  __nsa_script=$0
  if [[ ( ! -f $0 || $0 == "$BASH" ) && -r /proc/$$/cmdline ]]; then # before 5.2 $0 is not yet the script's name
    mapfile -t -d '' __nsa_rest <"/proc/$$/cmdline"
    for ((__nsa_count = 1; __nsa_count < ${#__nsa_rest[@]}; __nsa_count++)); do
      case ${__nsa_rest[__nsa_count]} in
        - | --) __nsa_count=$((__nsa_count + 1)); break ;;
        --rcfile | --init-file) __nsa_count=$((__nsa_count + 1)) ;; # each has an argument
        --*) ;;
        -*s*) __nsa_count=${#__nsa_rest[@]} ;; # what follows are its lines' arguments
        [-+]*[oO]*) __nsa_count=$((__nsa_count + 1)) ;;
        [-+]*) ;;
        *) break ;;
      esac
    done
    __nsa_script=${__nsa_rest[__nsa_count]-$0}
    unset -v __nsa_rest
  fi
  if [[ -f $__nsa_script && $__nsa_script != "$BASH" ]]; then
    [[ $__nsa_script == /* ]] || __nsa_script=$PWD/${__nsa_script#./}
    if __nsa_is_outside "$__nsa_script"; then
      unset -f __nsa_is_outside
      builtin printf 'outside\t%s\t%s\t0\t0\t%s\t\t\t\t\t0\t\n' "$$" "$PPID" "$__nsa_script" >> "$NSA_POD_SHELL_RECORD" || :
      return 0
    fi
  else
    unset -v __nsa_script
  fi
fi

if (( BASH_VERSINFO[0] == 4 )); then # where set -u also ends what asks for ${!-} before there was a job
  { : & } 2>/dev/null
  builtin wait $!
fi

__nsa_file=$NSA_POD_SHELL_RECORD __nsa_sh=${BASH_SOURCE[0]%/*}/bin/sh
__nsa_shell=$BASHPID __nsa_parent=$PPID
__nsa_unit=() __nsa_unit_line=0 __nsa_unit_file= # the commands of the pipeline that was begun last
__nsa_way= __nsa_again=                # the functions that ended with it; commands that have failed
__nsa_known=$'\n\n'                      # files and programs that were looked at, whether they are foreign
__nsa_said=                            # where words of a failure were printed
__nsa_count=0 __nsa_settled=0          # how many there have been, and of which the status was looked at
__nsa_open=0 __nsa_whole=1             # whether more of its members are to come; whether it began with the first
__nsa_begun=0 __nsa_seen=              # a pipeline was begun since PIPESTATUS, with this text, was looked at
__nsa_failed=0 __nsa_failed_by= __nsa_failed_first= __nsa_failed_line=0 __nsa_failed_as=untested
__nsa_bad=0 __nsa_bad_by= __nsa_bad_first=  # the last command that failed, tested or not
__nsa_by= __nsa_first= __nsa_depth=0
__nsa_awaited= __nsa_wanted=0          # the job that `wait` has named; whether the script itself has ended it
__nsa_job=${!-} __nsa_jobs=() __nsa_job_names=() __nsa_killed=0
__nsa_in_eval=0
__nsa_readers=()                       # processes of `>(...)`
__nsa_leaving=0 __nsa_status=0 __nsa_code=0
__nsa_trapped= __nsa_trapping=0        # the ERR trap that ran for what has failed; whether it does now
__nsa_on_EXIT= __nsa_on_ERR= __nsa_on_DEBUG= __nsa_on_RETURN= __nsa_traced=
__nsa_free=3 __nsa_next=4 __nsa_inherited=
__nsa_text=${BASH_EXECUTION_STRING-}   # of the script; '' where it is not known
if [[ -n ${__nsa_script-} ]]; then IFS= builtin read -r -d '' __nsa_text < "$__nsa_script" || :; fi
__nsa_sets_traps=1                     # whether it may, itself or by a file that it reads
if [[ -n $__nsa_text && -z ${NSA_POD_BASH_ENV-} && ! $__nsa_text =~ (^|[^[:alnum:]_])(trap|source|\.)[[:space:]] ]]; then
  __nsa_sets_traps=0
fi
unset -v __nsa_text

__nsa_look_at_descriptors() {
  local n
  __nsa_inherited=' '
  for n in 3 4 5 6 7 8 9; do
    [[ ! -p /dev/fd/$n ]] || __nsa_inherited+="$n "
  done
  __nsa_free=3
  while (( __nsa_free < 9 )) && [[ -e /dev/fd/$__nsa_free ]]; do __nsa_free=$((__nsa_free + 1)); done
  __nsa_next=$((__nsa_free + 1))
  while (( __nsa_next < 10 )) && [[ -e /dev/fd/$__nsa_next ]]; do __nsa_next=$((__nsa_next + 1)); done
}
__nsa_look_at_descriptors

# Before 5.1 the first of the lines that bash was given is line 0.
__nsa_before_first=$(( ${BASH_EXECUTION_STRING+1}0 && BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501 ))

# __nsa_write KIND CODE LINE COMMAND FIRST [MORE]
__nsa_write() {
  local file=$__nsa_unit_file line=$3 place=${__nsa_unit[*]-} more=${6-}
  case $file in
    '' | environment | "${BASH_SOURCE[0]}") file= line=$((line + __nsa_before_first)) ;; # lines that were given to bash
    "$0") file=${__nsa_script-$file} ;;
    /*) ;;
    *) file=$PWD/${file#./} ;;
  esac
  __nsa_put "$1" "$__nsa_shell" "$__nsa_parent" "$2" "$line" "$file" "${4:0:400}" "${5:0:200}" \
    "${place:0:400}" "$__nsa_way" "$__nsa_count" "${more:0:1000}"
}

__nsa_put() {
  local IFS=$'\x1d'
  if [[ "$*" == *[\\$'\t\n']* ]]; then
    local text=${*//\\/\\\\}
    text=${text//$'\t'/\\t} text=${text//$'\n'/\\n}
    set -- "${text//$IFS/$'\t'}"
  fi
  IFS=$'\t'
  builtin printf '%s\n' "$*" >> "$__nsa_file" || :
}

# What the first word of a command stands for: $1 the command, $2 the script's own $1.
__nsa_resolve() {
  __nsa_first=
  if [[ $1 =~ ^\"?\$[@*{1] && $1 =~ ^\"?\$\{?[@*1]\}?\"?([[:space:]]|$) ]]; then
    __nsa_first=$2
  elif [[ $1 =~ ^\"?\$\{?([A-Za-z_][A-Za-z0-9_]*)(\[[@*0]\])?(:-[^}]*)?\}?\"?([[:space:]/]|$) ]]; then
    __nsa_first=${!BASH_REMATCH[1]-}
  fi
}

# A shell that was forked from this one: nothing has failed in it yet.
__nsa_enter() {
  __nsa_parent=$__nsa_shell __nsa_shell=$BASHPID
  __nsa_unit=() __nsa_open=0 __nsa_whole=1 __nsa_begun=0 __nsa_seen=$1 __nsa_failed=0 __nsa_bad=0
  __nsa_job=${!-} __nsa_jobs=() __nsa_job_names=() __nsa_in_eval=0 __nsa_readers=() __nsa_killed=0
  __nsa_on_EXIT= __nsa_leaving=0 __nsa_trapping=0
  __nsa_look_at_descriptors
  __nsa_watch_end
}

# Bash with a trap at EXIT catches what would end it, so that the trap runs, and may lose a signal to a job that it is
# just starting. What is trapped as that trap is set is not caught: a script without such a trap of its own is ended, and
# ends its jobs, as it is without the recorder.
__nsa_watch_end() {
  local caught='HUP ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM SYS' IFS=' '
  if (( ! __nsa_sets_traps )); then builtin trap : $caught; fi
  __nsa_install EXIT
  if (( ! __nsa_sets_traps )); then builtin trap - $caught; fi
}

# How many ends of pipes of a pipeline under way this shell holds: 2 before its first member, 1 before its last.
__nsa_ends() {
  local n
  __nsa_held_ends=0
  for n in 3 4 5 6 7 8 9; do
    [[ $__nsa_inherited == *" $n "* || ! -p /dev/fd/$n ]] || __nsa_held_ends=$((__nsa_held_ends + 1))
  done
  (( __nsa_held_ends )) || __nsa_look_at_descriptors # the script has opened a file of its own
}

# Before each command: "$?" "$LINENO" "$1"
__nsa_before() {
  local -a __nsa_codes=("${PIPESTATUS[@]}")
  if [[ -e /dev/fd/199 ]]; then return 0; fi # a command of these functions
  __nsa_status=$1
  case ${FUNCNAME[1]-} in wait | trap | */*) return 0 ;; esac
  local IFS=' ' __nsa_held_ends=0 __nsa_here=$2
  if [[ $BASHPID != "$__nsa_shell" ]]; then
    if (( $1 )) && [[ ${__nsa_unit[*]-} != *[\`\(]* ]]; then __nsa_settle "$1" "$BASH_COMMAND" "$3"; fi
    __nsa_enter "${__nsa_codes[*]}"
    __nsa_write enters 0 "$2" "$BASH_COMMAND" ''
  fi
  if (( __nsa_trapping )); then return 0; fi # what has failed may end the script, or be asked for after the trap
  if [[ $BASH_COMMAND == "${__nsa_unit[*]-}" ]] && (( ${#FUNCNAME[@]} == __nsa_depth + 1 )); then
    __nsa_depth=${#FUNCNAME[@]} # the function that was called begins: PIPESTATUS is still of what was before
    __nsa_settled=$__nsa_count
    return 0
  fi
  case $BASH_COMMAND in
    *find\ *' -exec'* | *find\ *' -ok'* | *make\ *-* | *dash\ * | *zsh\ * | *ksh\ * | *fish\ * | *csh\ *)
      __nsa_write begins 0 "$2" "$BASH_COMMAND" '' ;;
  esac
  if (( __nsa_in_eval && ${#__nsa_unit[@]} > 1 && ${#__nsa_codes[@]} == 1 )); then __nsa_leaves_eval; fi
  if [[ -e /dev/fd/$__nsa_free || -e /dev/fd/$__nsa_next ]]; then __nsa_ends; fi
  if (( __nsa_open && __nsa_held_ends % 2 )); then
    __nsa_unit+=("$BASH_COMMAND")
    (( __nsa_held_ends > 1 )) || __nsa_open=0
    return 0
  fi
  if (( $1 || __nsa_failed || ${#__nsa_codes[@]} > 1 || __nsa_codes[0] )) ||
    [[ ${!-} != "$__nsa_job" || (-n $__nsa_again && $__nsa_again == *$'\n'"${__nsa_unit[*]-}"$'\n'*) ]]; then
    __nsa_settle "$1" "$BASH_COMMAND" "$3"
  fi
  if [[ $BASH_COMMAND == */* ]]; then __nsa_look_for_sh "$BASH_COMMAND"; fi
  case $BASH_COMMAND in
    for\ * | case\ * | select\ *) return 0 ;; # which runs nothing by itself
    eval\ *) __nsa_in_eval=1 ;;
    kill\ * | pkill\ * | killall\ *) __nsa_killed=1 ;;
    set\ *) case $BASH_COMMAND in *errtrace* | set\ -*E*) __nsa_traced+=' ERR' ;; *functrace* | set\ -*T*) __nsa_traced+=' DEBUG RETURN' ;; esac ;;
  esac
  __nsa_unit=("$BASH_COMMAND") __nsa_unit_line=$2 __nsa_unit_file=${BASH_SOURCE[1]-} __nsa_depth=${#FUNCNAME[@]} __nsa_way=
  __nsa_count=$((__nsa_count + 1))
  [[ $__nsa_known == *$'\n'"$__nsa_unit_file"$'\n'* ]] || __nsa_look_at_file
  case $BASH_COMMAND in
    echo\ *[Ee][Rr][Rr][Oo][Rr]* | echo\ *[Ff][Aa][Ii][Ll]* | echo\ *[Dd][Ii][Ff][Ff][Ee][Rr]* | echo\ *[Mm][Aa][Tt][Cc][Hh]* | echo\ *[Ww][Rr][Oo][Nn][Gg]* | \
      echo\ *[Cc][Oo][Rr][Rr][Ee][Cc][Tt]* | echo\ *[Nn][Oo][Tt]\ * | printf\ *[Ff][Aa][Ii][Ll]* | \
      printf\ *[Dd][Ii][Ff][Ff][Ee][Rr]* | printf\ *[Mm][Aa][Tt][Cc][Hh]* | printf\ *[Ww][Rr][Oo][Nn][Gg]*)
      if [[ $__nsa_said != *" $__nsa_unit_file:$2 "* ]]; then # maybe all that is made of a comparison
        __nsa_said+=" $__nsa_unit_file:$2 "
        __nsa_write says 0 "$2" "$BASH_COMMAND" ''
      fi ;;
  esac
  __nsa_open=0 __nsa_whole=1
  if (( __nsa_held_ends )); then
    __nsa_begun=1
    (( __nsa_held_ends == 1 )) || __nsa_open=1
    (( __nsa_held_ends == 2 )) || __nsa_whole=0
  fi
  return 0
}

# A file from which a command comes: where it is read in, it may set variables and choose, of which no more is said.
__nsa_look_at_file() {
  case $BASH_COMMAND in
    echo\ * | export\ * | declare\ * | readonly\ * | alias\ * | set\ * | unset\ * | shopt\ * | test\ * | \[* | :* | true | return* | .\ * | source\ *) return 0 ;;
  esac
  [[ ! $BASH_COMMAND =~ ^[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?= ]] || return 0
  __nsa_look_at "reads in" "$__nsa_unit_file"
}

# $1 what is done with the file $2
__nsa_look_at() {
  local file=$2
  [[ $__nsa_known != *$'\n'"$file"$'\n'* ]] || return 0
  __nsa_known+=$file$'\n'
  [[ $file == /* ]] || file=$PWD/${file#./}
  if [[ -f $file && $file != "${BASH_SOURCE[0]}" ]] && __nsa_is_outside "$file"; then
    __nsa_put foreign "$__nsa_shell" "$__nsa_parent" 0 0 "$file" '' "$1" '' '' 0 ''
  fi
}

# A pipeline that ended an `eval`, of which only the last status is left.
__nsa_leaves_eval() {
  local member
  __nsa_in_eval=0
  [[ ! -o pipefail ]] || return 0
  for member in "${__nsa_unit[@]::${#__nsa_unit[@]}-1}"; do
    __nsa_resolve "$member" ''
    __nsa_write eval 0 "$__nsa_unit_line" "$member" "$__nsa_first"
  done
}

# A script that names /bin/sh is run by a sh that is recorded: by a function of its name, for nothing else has its place in
# redirections, pipes and conditions. It fails where it is called, and not inside (`&& :`). $1 the command
__nsa_look_for_sh() {
  local word=$1 line= run=
  while [[ $word =~ ^[A-Za-z_][A-Za-z0-9_]*=[^[:space:]\"\'\`\$]*[[:space:]]+(.*) ]]; do word=${BASH_REMATCH[1]}; done
  word=${word%%[[:space:]]*} word=${word//\"/}
  while [[ $word =~ \$([A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}) ]]; do
    line=${BASH_REMATCH[1]#\{} line=${line%\}}
    word=${word/"${BASH_REMATCH[0]}"/${!line-}}
  done
  [[ $word == */* && $word =~ ^[A-Za-z0-9_./+-]+$ && -x $__nsa_sh ]] || return 0
  [[ ! -x $word ]] || __nsa_look_at runs "$word"
  if [[ $word == /bin/sh || $word == /usr/bin/sh ]]; then
    run=\"$__nsa_sh\"
  elif [[ -f $word && -x $word ]] && { IFS= builtin read -r line < "$word"; } 2>/dev/null &&
    [[ $line =~ ^#![[:space:]]*(/usr)?/bin/(env[[:space:]]+)?sh([[:space:]]+(-[A-Za-z]+))?[[:space:]]*$ ]]; then
    run="\"$__nsa_sh\" ${BASH_REMATCH[4]} \"$word\""
  fi
  if [[ -n $run ]]; then
    eval "function $word { { local -; set +x; } 2>/dev/null; { $run \"\$@\" 199<&- && :; } 199</dev/null; }"
  elif builtin declare -F -- "$word" >/dev/null; then
    builtin unset -f -- "$word"
  fi
}

# What became of the command before: $1 its status, $2 the next command, $3 the script's $1.
__nsa_settle() {
  local reads=
  case $2 in
    echo\ * | printf\ [!-]*) ;; # which only shows it
    *'$?'* | *'${?'*) reads=status ;;
  esac
  case $2 in
    *PIPESTATUS*) [[ $2 == echo\ * || $2 == printf\ [!-]* ]] || reads=all ;;
  esac
  if [[ ${!-} != "$__nsa_job" ]]; then __nsa_note_job; fi
  if (( ${#__nsa_codes[@]} > 1 )); then
    if (( __nsa_begun )) || [[ ${__nsa_codes[*]} != "$__nsa_seen" ]]; then
      if [[ $reads == all ]]; then __nsa_members "$3" tested "$2"; else __nsa_members "$3" member; fi
    fi
  fi
  __nsa_begun=0 __nsa_seen=${__nsa_codes[*]}
  if (( __nsa_failed )); then
    local kind=$__nsa_failed_as
    if [[ -n $reads ]]; then kind=tested; fi
    if (( __nsa_leaving )); then # where bash does not say which command runs
      kind=cleanup __nsa_failed_by=$__nsa_on_EXIT __nsa_failed_first=
    fi
    if [[ $kind == trapped ]]; then set -- "$1" "$__nsa_trapped" "$3"; fi
    __nsa_write "$kind" "$__nsa_failed" "$__nsa_failed_line" "$__nsa_failed_by" "$__nsa_failed_first" "$2"
    __nsa_bad=$__nsa_failed __nsa_bad_by=$__nsa_failed_by __nsa_bad_first=$__nsa_failed_first __nsa_failed=0
    if [[ $kind == t* ]]; then __nsa_may_come_again; fi
  elif (( __nsa_wanted || __nsa_trapping )); then : # a job that the script has ended; in a trap nobody says which it is
  elif [[ $__nsa_settled != "$__nsa_count" && "$1 ${__nsa_codes[*]}" == *[1-9]* ]] && __nsa_has_failed "$1"; then
    # Not the end of this shell, which is told for itself, and not what a subshell has of a command before it.
    [[ $1 != 0 && -z $2 || -z ${__nsa_unit[*]-} ]] || __nsa_tested "$__nsa_code" "$2" "$3"
  elif (( ! __nsa_leaving )) && [[ $__nsa_settled != "$__nsa_count" && $__nsa_again == *$'\n'"${__nsa_unit[*]-}"$'\n'* ]]; then
    __nsa_write again 0 "$__nsa_unit_line" "${__nsa_unit[*]-}" ''
    __nsa_again=${__nsa_again//$'\n'"${__nsa_unit[*]-}"$'\n'/}
  fi
  __nsa_settled=$__nsa_count __nsa_wanted=0 __nsa_awaited=
}

# Whether the last pipeline has failed, with __nsa_code: also where `$?`, which is $1, is 0, for it was negated, or the
# condition of something that has no branch for it.
__nsa_has_failed() {
  local i n=${#__nsa_codes[@]}
  __nsa_code=$1
  (( __nsa_code )) || __nsa_code=${__nsa_codes[n - 1]}
  if (( ! __nsa_code )) && [[ -o pipefail ]]; then
    for (( i = n - 2; i >= 0 && ! __nsa_code; i-- )); do
      __nsa_is_cut_short "$i" || __nsa_code=${__nsa_codes[i]}
    done
  fi
  (( __nsa_code ))
}

# A failure that was tested.
__nsa_tested() {
  __nsa_name "$1" "$3"
  case ${__nsa_unit[*]-} in
    return*) if (( __nsa_bad == $1 )); then __nsa_by=$__nsa_bad_by __nsa_first=$__nsa_bad_first; fi ;;
    wait*) if [[ -n $__nsa_awaited ]]; then __nsa_by=$__nsa_awaited; fi ;;
  esac
  __nsa_bad=$1 __nsa_bad_by=$__nsa_by __nsa_bad_first=$__nsa_first
  case $__nsa_by in
    '[ '* | '[[ '* | '(('* | 'test '* | 'let '* | 'read '*) return 0 ;; # which are questions
  esac
  [[ ${__nsa_here-} != "$__nsa_unit_line" ]] || set -- "$1" "=$2"
  local kind=tested
  [[ "${__nsa_codes[*]}" == *[1-9]* ]] || kind=negated
  __nsa_write "$kind" "$1" "$__nsa_unit_line" "$__nsa_by" "$__nsa_first" "$2"
  __nsa_may_come_again
}

# Remembers the command that has failed, whose success is told then.
__nsa_may_come_again() {
  [[ $__nsa_again == *$'\n'"$__nsa_bad_by"$'\n'* ]] || __nsa_again+=$'\n'"$__nsa_bad_by"$'\n'
}

# Which command of the last pipeline has this status, as __nsa_by: the last that does.
__nsa_name() {
  local i by=$((${#__nsa_codes[@]} - 1))
  for (( i = by; i >= 0; i-- )); do
    if (( __nsa_codes[i] == $1 )); then by=$i; break; fi
  done
  __nsa_member "$by" "$2"
}

# The command of member $1 of the last pipeline, as __nsa_by; blank where it is no simple command.
__nsa_member() {
  local n=${#__nsa_codes[@]} m=${#__nsa_unit[@]}
  __nsa_by=
  if (( n == m )); then
    __nsa_by=${__nsa_unit[$1]-}
  elif (( n == 1 && m )); then
    __nsa_by=${__nsa_unit[m - 1]}
  elif (( $1 == 0 && m && __nsa_whole )); then
    __nsa_by=${__nsa_unit[0]}
  elif (( $1 == n - 1 && m && ! __nsa_open )); then
    __nsa_by=${__nsa_unit[m - 1]}
  fi
  __nsa_resolve "$__nsa_by" "$2"
}

# Whether member $1 of a pipeline is a writer that SIGPIPE has ended, whose reader ended with 0, or as it did.
__nsa_is_cut_short() {
  (( __nsa_codes[$1] == 141 && (__nsa_codes[$1 + 1] == 0 || __nsa_codes[$1 + 1] == 141) ))
}

# Whether no other member of a pipeline has failed.
__nsa_only_cut_short() {
  local i
  for (( i = 0; i < ${#__nsa_codes[@]} - 1; i++ )); do
    if (( __nsa_codes[i] )) && ! __nsa_is_cut_short "$i"; then return 1; fi
  done
}

# The members of a pipeline whose own status hides theirs: $1 the script's $1, $2 how they failed, $3 the next command.
__nsa_members() {
  local i kind n=${#__nsa_codes[@]}
  if (( __nsa_codes[n - 1] )) || [[ -o pipefail ]]; then return 0; fi
  for (( i = 0; i < n - 1; i++ )); do
    if (( __nsa_codes[i] )) && ! __nsa_is_cut_short "$i"; then
      __nsa_member "$i" "$1"
      kind=$2
      if [[ ${3-} == *PIPESTATUS[[][0-9]* && $3 != *PIPESTATUS[[][!0-9]* && $3 != *PIPESTATUS[[]"$i"]* ]]; then kind=member; fi
      __nsa_write "$kind" "${__nsa_codes[i]}" "$__nsa_unit_line" "$__nsa_by" "$__nsa_first" "${3-}"
    fi
  done
}

# ERR: "$?" "$LINENO" "$1" "$BASH_COMMAND", which before 5.1 is another one in here. What failed in a function has a
# better name than its call.
__nsa_fails() {
  local -a __nsa_codes=("${PIPESTATUS[@]}")
  case ${FUNCNAME[1]-} in __nsa_* | wait | trap | */*) return "$1" ;; esac
  __nsa_status=$1
  if (( __nsa_wanted )); then return "$1"; fi
  __nsa_trapped=
  if [[ $BASHPID != "$__nsa_shell" ]]; then __nsa_enter "${__nsa_codes[*]}"; fi
  if (( ! __nsa_failed )); then
    __nsa_failed_as=untested
    if [[ $4 == '[['* || $4 == '(('* ]]; then # which leave PIPESTATUS as it was
      __nsa_codes=("$1")
    elif (( ! __nsa_codes[${#__nsa_codes[@]} - 1] )); then # what a member returned, under pipefail
      if __nsa_only_cut_short; then return "$1"; fi
      __nsa_failed_as=member
    fi
    __nsa_name "$1" "$3"
    if [[ $4 == '('* && $4 != '(('* ]]; then __nsa_by=; fi
    __nsa_failed=$1 __nsa_failed_line=$__nsa_unit_line __nsa_failed_by=$__nsa_by __nsa_failed_first=$__nsa_first
    if [[ $__nsa_by == return* && $__nsa_bad == "$1" ]]; then
      __nsa_failed_by=$__nsa_bad_by __nsa_failed_first=$__nsa_bad_first
    elif [[ $__nsa_by == wait* && -n $__nsa_awaited ]]; then
      __nsa_failed_by=$__nsa_awaited
    fi
  fi
  return "$1"
}

# The script's own ERR trap begins, with `$?` as it was.
__nsa_traps() {
  if (( __nsa_failed )); then __nsa_failed_as=trapped __nsa_trapped=$__nsa_on_ERR; fi
  __nsa_trapping=1
  return "$__nsa_status"
}

# Its end: the status that comes back to the script is the one that was trapped.
__nsa_has_trapped() {
  __nsa_trapping=0 __nsa_settled=$__nsa_count
}

# What has ended: its name, where it was called (file, line), and how deep that is.
__nsa_add_to_way() {
  case $2 in '' | environment) set -- "$1" "$2" $(($3 + __nsa_before_first)) "$4" ;; esac
  __nsa_way+=$1$'\x1f'$2$'\x1f'$3$'\x1e' __nsa_depth=$4
}

# RETURN: "$?" "$1", of a function or a sourced file. A pipeline that ends it: its caller no longer sees PIPESTATUS.
__nsa_returns() {
  local -a __nsa_codes=("${PIPESTATUS[@]}")
  case ${FUNCNAME[1]-} in __nsa_* | trap | wait | */*) return 0 ;; esac
  __nsa_status=$1
  if (( __nsa_depth > ${#FUNCNAME[@]} )); then # a sourced file, which is forgotten before
    __nsa_add_to_way source "${BASH_SOURCE[1]-}" "${BASH_LINENO[0]}" "${#FUNCNAME[@]}"
  else
    __nsa_add_to_way "${FUNCNAME[1]-}" "${BASH_SOURCE[2]-}" "${BASH_LINENO[1]-}" $((${#FUNCNAME[@]} - 1))
  fi
  if (( ${#__nsa_codes[@]} > 1 )) && [[ $BASHPID == "$__nsa_shell" ]]; then
    local IFS=' '
    if (( __nsa_begun )) || [[ ${__nsa_codes[*]} != "$__nsa_seen" ]]; then __nsa_members "$2" member; fi
    __nsa_begun=0 __nsa_seen=${__nsa_codes[*]} __nsa_in_eval=0
  elif (( ! $1 && __nsa_codes[0] )) && [[ $__nsa_settled != "$__nsa_count" && $BASHPID == "$__nsa_shell" ]]; then
    # It was negated, or a condition without a branch for it: the caller sees 0.
    __nsa_tested "${__nsa_codes[0]}" '' "$2"
    __nsa_settled=$__nsa_count
  fi
}

# EXIT, of the script and of each subshell: "$?" "$1"
__nsa_leaves() {
  local -a __nsa_codes=("${PIPESTATUS[@]}")
  local IFS=' ' i by first
  if (( __nsa_in_eval && ${#__nsa_unit[@]} > 1 && ${#__nsa_codes[@]} == 1 )); then __nsa_leaves_eval; fi
  if (( $1 )); then
    by=$__nsa_failed_by first=$__nsa_failed_first
    if (( ! __nsa_failed )); then __nsa_name "$1" "$2"; by=$__nsa_by first=$__nsa_first; fi
    if [[ $by == exit* && $__nsa_bad == "$1" ]]; then by=$__nsa_bad_by first=$__nsa_bad_first; fi
    __nsa_failed=0
    __nsa_settle "$1" '' "$2"
    __nsa_ends_badly "$1" "$by" "$first"
  elif (( __nsa_failed || ${#__nsa_codes[@]} > 1 || __nsa_codes[0] )) || [[ ${!-} != "$__nsa_job" || -n $__nsa_again ]]; then
    __nsa_settle 0 '' "$2"
  fi
  for i in "${!__nsa_jobs[@]}"; do __nsa_end_job "$i"; done
  for i in "${BASH_CMDS[@]}"; do [[ $i == /usr/* || $i == /bin/* ]] || __nsa_look_at runs "$i"; done # that PATH has led to
  for i in "${__nsa_readers[@]}"; do __nsa_soon_ends "$i" || :; done # each writes down what it returns
  if [[ -n $__nsa_on_EXIT ]]; then
    local __nsa_looked_at=' '
    if __nsa_kills "$__nsa_on_EXIT"; then __nsa_killed=1; fi
  fi
  __nsa_leaving=1 __nsa_failed=0 __nsa_status=$1
  __nsa_give_back
}

# Whether a trap ends processes, itself or in a function of the script, of which it looks at each once: $1 its text. While
# a trap runs, bash does not say which command does.
__nsa_kills() {
  local - word IFS=$' \t\n'
  set -f +T
  [[ ! $1 =~ (^|[^[:alnum:]_-])(kill|pkill|killall)([[:space:]]|$) ]] || return 0
  for word in ${1//[;&|(){\}\"]/ }; do
    [[ $__nsa_looked_at != *" $word "* ]] || continue
    __nsa_looked_at+="$word "
    if builtin declare -F -- "$word" >/dev/null && __nsa_kills "$(builtin declare -f -- "$word")"; then return 0; fi
  done
  return 1
}

# The end of this shell or subshell: its status, the command that it comes from, and that one's first word.
__nsa_ends_badly() {
  local __nsa_above=
  if (( BASHPID == $$ )); then __nsa_look_above; fi
  __nsa_write passed "$1" "$__nsa_unit_line" "$2" "$3" "$__nsa_above"
}

# The end of the script's own EXIT trap: "$?" "$1". A job that still ran before it, and soon does not, was ended by it.
__nsa_left() {
  local -a __nsa_codes=("${PIPESTATUS[@]}")
  local IFS=' ' i
  __nsa_settle "$1" '' "$2"
  __nsa_killed=1
  for i in "${!__nsa_jobs[@]}"; do
    __nsa_soon_ends "${__nsa_jobs[i]}" || continue
    __nsa_end_job "$i"
  done
}

# Whether a process has ended within a second.
__nsa_soon_ends() {
  local n
  for (( n = 0; n < 20; n++ )); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.05
  done
  return 1
}

# `$?` as it was, for what the script has set as a trap.
__nsa_give_back() {
  return "$__nsa_status"
}

# The processes above this shell up to the agent, as __nsa_above: of each its id and its name.
__nsa_look_above() {
  local pid=$PPID line IFS=' ' n
  local -a words
  __nsa_above=
  for (( n = 0; n < 20 && pid > 1 && pid != ${NSA_POD_AGENT:-0}; n++ )); do
    IFS= builtin read -r line < "/proc/$pid/stat" || return 0
    words=(${line##*\) }) line=${line#*\(}
    __nsa_above+=$pid$'\x1f'${line%\)*}$'\x1e' pid=${words[1]}
  done
  __nsa_above+=$pid$'\x1f'
}

__nsa_note_job() {
  __nsa_job=${!-}
  case ${__nsa_unit[*]-} in # a substitution's process is no job
    exec\ *'>('*) return 0 ;; # which ends after this shell
    *'>('*) __nsa_readers+=("$__nsa_job"); return 0 ;;
    *'<('*) return 0 ;;
  esac
  __nsa_jobs+=("$__nsa_job")
  __nsa_job_names+=("${__nsa_unit_line}"$'\t'"${__nsa_unit[*]-}")
}

# What background job number $1 returned, if it has ended; nobody has asked before.
__nsa_end_job() {
  local pid=${__nsa_jobs[$1]} name=${__nsa_job_names[$1]} code=0
  if kill -0 "$pid" 2>/dev/null; then
    __nsa_resolve "${name#*$'\t'}" ''
    (( __nsa_killed )) || __nsa_write running 0 "${name%%$'\t'*}" "${name#*$'\t'}" "$__nsa_first" "$pid"
    return 0
  fi
  builtin wait "$pid" 2>/dev/null || code=$?
  __nsa_job_ended "$1" "$code"
}

# Forgets job number $1, which returned $2.
__nsa_job_ended() {
  local name=${__nsa_job_names[$1]} pid=${__nsa_jobs[$1]}
  __nsa_forget_job "$1"
  case $2 in
    0 | 127) return 0 ;; # 127: bash does not know it any more
    129 | 130 | 137 | 143) (( ! __nsa_killed )) || return 0 ;; # as the script wanted
  esac
  __nsa_resolve "${name#*$'\t'}" ''
  __nsa_write background "$2" "${name%%$'\t'*}" "${name#*$'\t'}" "$__nsa_first" "$pid"
}

# Job number $1 has ended; where the script's EXIT trap has waited for it, it was told of as running.
__nsa_forget_job() {
  local name=${__nsa_job_names[$1]} pid=${__nsa_jobs[$1]}
  unset -v "__nsa_jobs[$1]" "__nsa_job_names[$1]"
  (( ! __nsa_leaving )) || __nsa_write ended 0 "${name%%$'\t'*}" "${name#*$'\t'}" '' "$pid"
}

# `wait` without names returns 0, and with several the status of the last: the others' are asked for first.
wait() {
  { local -; set +x; } 2>/dev/null
  { __nsa_wait "$@"; } 199</dev/null
}

__nsa_wait() {
  local i pid code=0 known
  if [[ ${!-} != "$__nsa_job" ]]; then __nsa_note_job; fi
  if (( $# == 0 )); then
    known=" $(builtin jobs -p) " known=${known//$'\n'/ }
    for i in "${!__nsa_jobs[@]}"; do
      pid=${__nsa_jobs[i]} code=0
      if [[ $known != *" $pid "* ]] && kill -0 "$pid" 2>/dev/null; then continue; fi
      builtin wait "$pid" 2>/dev/null || code=$?
      if (( code > 128 )) && kill -0 "$pid" 2>/dev/null; then return "$code"; fi # a signal came
      __nsa_job_ended "$i" "$code"
    done
    builtin wait
    return
  fi
  if [[ $1 == -* ]]; then # which one that was is not known
    __nsa_jobs=() __nsa_job_names=()
    builtin wait "$@" || return
    return 0
  fi
  while (( $# )); do
    code=0
    builtin wait "$1" || code=$?
    for i in "${!__nsa_jobs[@]}"; do
      [[ ${__nsa_jobs[i]} == "$1" ]] || continue
      if (( $# > 1 )); then
        __nsa_job_ended "$i" "$code"
      elif (( __nsa_killed )) && [[ $code == 129 || $code == 130 || $code == 137 || $code == 143 ]]; then
        __nsa_forget_job "$i"
        __nsa_wanted=1
      else
        __nsa_awaited=${__nsa_job_names[i]#*$'\t'}
        __nsa_forget_job "$i"
      fi
    done
    shift
  done
  return "$code"
}

# Traps of the script's own run after these.
trap() {
  { local -; set +x; } 2>/dev/null
  { __nsa_trap "$@"; } 199</dev/null
}

__nsa_trap() {
  local code name
  local -a rest=()
  case ${1-} in
    -l) builtin trap -l; return ;;
    '' | -p)
      if (( $# )) && [[ -z $1 ]]; then :; else
        if (( $# )); then shift; fi
        __nsa_show_traps "$@"
        return
      fi ;;
  esac
  if [[ ${1-} == -- ]]; then shift; fi
  if (( $# == 1 )); then set -- - "$1"; fi
  code=$1
  shift
  for name; do
    case ${name#SIG} in
      EXIT | exit | 0) __nsa_remember EXIT "$code" ;;
      ERR | err) __nsa_remember ERR "$code" ;;
      DEBUG | debug) __nsa_remember DEBUG "$code" ;;
      RETURN | return) __nsa_remember RETURN "$code" ;;
      *) rest+=("$name") ;;
    esac
  done
  if (( ${#rest[@]} )); then builtin trap -- "$code" "${rest[@]}"; fi
}

__nsa_show_traps() {
  local name all asked=" $* " quote="'" quoted="'\\''"
  for name in EXIT ERR DEBUG RETURN; do
    all=__nsa_on_$name
    if [[ -n ${!all} ]] && { (( ! $# )) || [[ $asked == *" $name "* ]]; }; then
      builtin printf "trap -- '%s' %s\n" "${!all//$quote/$quoted}" "$name"
    fi
  done
  if (( ! $# )); then set -- {1..15} {17..31}; fi
  for name; do
    case $name in EXIT | ERR | DEBUG | RETURN | 0) ;; *) builtin trap -p "$name" ;; esac
  done
}

__nsa_remember() {
  local code=$2
  [[ $code != - ]] || code=
  builtin printf -v "__nsa_on_$1" %s "$code"
  builtin printf -v "__nsa_owner_$1" %s "$BASHPID"
  builtin printf -v "__nsa_level_$1" %s $((${#FUNCNAME[@]} - 3)) # without these three functions
  __nsa_install "$1"
}

# Sets the trap $1: what is recorded, then what the script has set, in the same line, for LINENO counts from it. fd 199
# tells the DEBUG trap that this is none of it.
# `&& :` leaves `$?` as it is without a failure of its own, with which `set -e` would end the script before its trap.
__nsa_install() {
  local own=__nsa_on_$1 text
  case $1 in
    EXIT) text='{ __nsa_leaves "$?" "${1-}" && :; } 199</dev/null 2>/dev/null' ;;
    ERR) text='{ __nsa_fails "$?" "$LINENO" "${1-}" "$BASH_COMMAND" && :; } 199</dev/null 2>/dev/null' ;;
    RETURN) text='{ __nsa_returns "$?" "${1-}"; } 199</dev/null 2>/dev/null' ;;
    DEBUG) text='{ case ${FUNCNAME-} in __nsa_*) ;; *) __nsa_before "$?" "$LINENO" "${1-}" "$_" ;; esac; } 2>/dev/null' ;;
  esac
  if [[ -n ${!own} && $1 == EXIT ]]; then
    text+="; ${!own}"$'\n{ __nsa_left "$?" "${1-}"; } 199</dev/null 2>/dev/null'
  elif [[ -n ${!own} ]]; then
    local begin=__nsa_give_back end= outside=
    case $1 in
      ERR) begin=__nsa_traps end='{ __nsa_has_trapped; } 199</dev/null' ;;
      DEBUG) outside='[[ ! -e /dev/fd/199 ]] && ' ;;
    esac
    text+="; if $outside{ __nsa_is_own $1; } 199</dev/null; then { $begin && :; } 199</dev/null; ${!own}"$'\n'"$end"$'\nfi'
  fi
  builtin trap -- "$text" "$1"
}

# Whether the script's own trap $1 would run here, without the tracing that is on for the recorder's.
__nsa_is_own() {
  local owner=__nsa_owner_$1 level=__nsa_level_$1
  case ${FUNCNAME[1]-} in __nsa_* | wait | trap | */*) return 1 ;; esac
  [[ $1 != ERR || -z $__nsa_trapped ]] || return 1
  [[ " $__nsa_traced " == *" $1 "* ]] || (( ${#FUNCNAME[@]} - 1 <= ${!level} )) && [[ ${!owner} == "$BASHPID" ]]
}

export NSA_POD_SHELL=$$
__nsa_put loaded "$$" "$PPID" 0 0 "${__nsa_script-}" "$-" "${NSA_POD_BY_SYSTEM+system}" '' '' 0 \
  "${BASH_EXECUTION_STRING-}"
unset NSA_POD_BY_SYSTEM
if [[ -n ${NSA_POD_BASH_ENV-} && -r $NSA_POD_BASH_ENV ]]; then . "$NSA_POD_BASH_ENV"; fi
set -ET
__nsa_watch_end
__nsa_install ERR
__nsa_install RETURN
__nsa_install DEBUG
