local lockstep_fence, lockstep_token = KEYS[#KEYS], ARGV[#ARGV]
local lockstep_seen = redis.call('GET', lockstep_fence)
if lockstep_seen and lockstep_seen ~= lockstep_token then
    if #lockstep_seen > #lockstep_token
        or #lockstep_seen == #lockstep_token and lockstep_seen > lockstep_token then
        return redis.error_reply('LOCKSTEPSTALE ' .. lockstep_seen)
    end
end
if lockstep_seen ~= lockstep_token then
    redis.call('SET', lockstep_fence, lockstep_token)
end
